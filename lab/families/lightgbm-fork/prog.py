# SPDX-License-Identifier: MIT
# Trains once in the parent (OpenMP makes its threads), then again in a forked child.
import multiprocessing as mp, numpy as np, lightgbm as lgb

X = np.random.RandomState(0).rand(3000, 8)
y = X[:, 0] + X[:, 1]


def fit(tag):
    b = lgb.train(
        {"objective": "regression", "num_threads": 4, "verbose": -1}, lgb.Dataset(X, y), 5
    )
    print(tag, b.num_trees(), flush=True)


if __name__ == "__main__":
    fit("parent")
    p = mp.get_context("fork").Process(target=fit, args=("child",), name="fit-child")
    p.start()
    p.join()
    print("done")

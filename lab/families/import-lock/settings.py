# SPDX-License-Identifier: MIT
# Reads its value in a worker thread while the module is still being imported.
import concurrent.futures

with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="reader") as ex:
    import loader

    VALUE = ex.submit(loader.read).result()

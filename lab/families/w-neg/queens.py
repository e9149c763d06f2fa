def solve(n, row, cols, up, down):
    if row == n:
        return 1
    found = 0
    for c in range(n):
        if c not in cols and row + c not in up and row - c not in down:
            found += solve(n, row + 1, cols | {c}, up | {row + c}, down | {row - c})
    return found
total = 0
while True:
    total += solve(8, 0, frozenset(), frozenset(), frozenset())

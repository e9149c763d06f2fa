import re
rule = re.compile(r"^(\w+\s?)*(-+)?$")
n = 0
while True:
    n += 1
    rule.match("word " * (3 + n % 3) + "x" * (10 + n % 6) + "!")

# SPDX-License-Identifier: MIT
from lab_truth import ready, role
from pygments import highlight
from pygments.formatters import NullFormatter
from pygments.lexers.ml import SMLLexer

role("waiter")
ready()
print(highlight("exception", SMLLexer(), NullFormatter()))

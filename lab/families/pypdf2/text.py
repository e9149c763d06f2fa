# SPDX-License-Identifier: MIT
import os, sys
from PyPDF2 import PdfFileReader

print("pid", os.getpid(), "spinning_tid", os.getpid(), flush=True)
print(PdfFileReader(sys.argv[1]).getPage(0).extractText())

# SPDX-License-Identifier: MIT
# Waits for a file that does not come.
how <- commandArgs(TRUE)[1]
if (how == "file") while (!file.exists("/tmp/never")) { }
if (how == "file-sleep") while (!file.exists("/tmp/never")) Sys.sleep(0.001)

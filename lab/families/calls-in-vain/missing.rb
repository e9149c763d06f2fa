# SPDX-License-Identifier: MIT
tries = 0
tries += 1 until File.exist?("/tmp/never-there")

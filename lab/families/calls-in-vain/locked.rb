# SPDX-License-Identifier: MIT
require "tempfile"
path = Tempfile.new("lock").path
holder = File.open(path, "w")
holder.flock(File::LOCK_EX)
tries = 0
other = File.open(path, "w")
tries += 1 until other.flock(File::LOCK_EX | File::LOCK_NB)

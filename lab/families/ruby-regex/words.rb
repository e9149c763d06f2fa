# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

role("waiter")
truth("ready")
puts(/\A(a|aa)+(\1b)?\z/.match?("a" * 80 + "!"))

# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

role("waiter")
truth("ready")
found = []
number = 2
loop do
  found << number if found.first(200).all? { |prime| number % prime != 0 }
  found.clear if found.size > 100_000
  number += 1
end

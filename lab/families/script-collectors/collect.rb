# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

heap = Array.new(500_000) { |number| [number] }
role("waiter")
truth("ready")
loop do
  GC.start
  heap[heap.size / 2] = [heap[0]]
end

# SPDX-License-Identifier: MIT
require "thread"
q = SizedQueue.new(3)
consumer = Thread.new do
  loop do
    n = q.pop
    raise ArgumentError, "bad #{n}" if n == 4
    sleep 0.01
  end
end
producer = Thread.new { Thread.current.name = "producer"; 100.times { |i| q.push(i) } }
ticker = Thread.new { Thread.current.name = "ticker"; loop { sleep 0.2 } }
producer.join

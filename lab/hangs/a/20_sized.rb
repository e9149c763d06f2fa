# the consumer ended (report_on_exception tells); the producer blocks on a full SizedQueue; main joins it
require "thread"
q = SizedQueue.new(3)
consumer = Thread.new { Thread.current.name = "consumer"; loop { n = q.pop; raise ArgumentError, "bad #{n}" if n == 4; sleep 0.01 } }
producer = Thread.new { Thread.current.name = "producer"; 100.times { |i| q.push(i) } }
ticker = Thread.new { Thread.current.name = "ticker"; loop { sleep 0.2 } }
producer.join

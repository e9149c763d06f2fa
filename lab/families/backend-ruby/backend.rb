# SPDX-License-Identifier: MIT
# The first thread joins one that wants a lock; its holder wants another, whose holder waits for a
# child.
first = Mutex.new
second = Mutex.new

def convert(lock)
  lock.synchronize { IO.popen(%w[sleep 3600], &:read) }
end

def merge(one, other)
  one.synchronize do
    sleep 0.3
    other.synchronize { puts 'merged' }
  end
end

def publish(lock)
  sleep 0.6
  lock.synchronize { puts 'published' }
end

$stdout.sync = true
puts 'begins'
Thread.new { loop { sleep 0.5 } }
Thread.new { convert(second) }
Thread.new { merge(first, second) }
Thread.new { publish(first) }.join

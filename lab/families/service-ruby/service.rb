# SPDX-License-Identifier: MIT
# Hangs of small services: `service.rb HANG` says that it begins, and stands a moment later.
require 'socket'

Thread.abort_on_exception = false
Thread.report_on_exception = false

# A lock whose holder reads.
def holder
  lock = Mutex.new
  Thread.new { hold(lock) }
  sleep 0.3
  lock.synchronize { puts 'got it' }
end

def hold(lock)
  lock.synchronize { $stdin.gets }
end

# The producer wants the lock that the consumer has.
def crossed
  lock = Mutex.new
  rows = Queue.new
  Thread.new { produce(lock, rows) }
  lock.synchronize do
    puts rows.pop
  end
end

def produce(lock, rows)
  sleep 0.3
  lock.synchronize { rows << 'row' }
end

# A condition is signalled by one that waits for a child.
def condition
  lock = Mutex.new
  ready = ConditionVariable.new
  state = { done: false }
  Thread.new { build(lock, ready, state) }
  lock.synchronize { ready.wait(lock) until state[:done] }
end

def build(lock, ready, state)
  system('sleep', '3600')
  lock.synchronize do
    state[:done] = true
    ready.signal
  end
end

$stdout.sync = true
puts 'begins'
server = TCPServer.new('127.0.0.1', 0)
Thread.new { loop { server.accept.close } }
Thread.new { loop { sleep 0.2 } }
send(ARGV[0])

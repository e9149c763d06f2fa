# SPDX-License-Identifier: MIT
# The main thread waits for what another writes. Each line on stdin makes that write 3.
require "socket"

class Box
  attr_accessor :state
  def initialize = @state = 0
end

$state = 0
box = Box.new
table = { ready: 0 }
cells = Array.new(16, 0)
queue = Queue.new
lock = Mutex.new
writer = Thread.new do
  lock.synchronize do
    while $stdin.gets
      $state = box.state = table[:ready] = cells[5] = 3
    end
  end
end
how = ARGV[0]
child = how == "child" ? spawn("sleep 100") : nil
ours, theirs = UNIXSocket.pair
sleep 0.3
case how
when "global" then nil while $state != 7
when "attribute" then Thread.pass while box.state != 7
when "table" then sleep 0 while table[:ready] != 7
when "cells" then sleep 0.001 while cells[5] != 7
when "pass" then Thread.pass while $state != 7
when "file" then nil until File.exist?("/tmp/never")
when "child" then sleep 0.001 until Process.wait(child, Process::WNOHANG)
when "socket" then sleep 0 while ours.read_nonblock(1, exception: false) == :wait_readable
when "queue" then queue.pop
when "lock" then lock.lock
when "join" then writer.join
end

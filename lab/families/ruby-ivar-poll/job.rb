# SPDX-License-Identifier: MIT
require "fiddle"
require "socket"
require "#{ENV['PYTHONPATH']}/truth"

class Job
  def initialize
    @done = false
    @server = TCPServer.new("127.0.0.1", 0)
  end

  def run
    role("setter")
    @server.accept
    @done = true
  end

  def join
    Thread.pass until @done
  end

  # The first instance variable lies behind the two words of the object's head.
  def address
    Fiddle.dlwrap(self) + 16
  end
end

job = Job.new
Thread.new { job.run }
sleep 0.2
role("waiter")
truth(format("word done 0x%x 8", job.address))
truth("ready")
job.join
sleep 5

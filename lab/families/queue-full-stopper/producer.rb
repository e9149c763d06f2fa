# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

Thread.report_on_exception = false
jobs = SizedQueue.new(4)
Thread.new { loop { puts 10 / (5 - jobs.pop) } }
# A thread that sleeps, so that Ruby does not see the deadlock itself.
Thread.new { sleep }
Thread.new { loop { sleep 1000 } }
role("waiter")
100.times do |number|
  if number == 8
    sleep 0.2
    truth("ready")
  end
  jobs.push(number)
end

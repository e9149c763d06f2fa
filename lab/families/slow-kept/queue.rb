# SPDX-License-Identifier: MIT
# One thread asks another for something; a third sorts in one call, which no other thread breaks.
require "#{ENV.fetch("PYTHONPATH")}/truth"

role("service")
Thread.new do
  role("clock")
  loop { sleep 0.03 }
end
jobs, answers = Queue.new, Queue.new
Thread.new do
  role("worker")
  loop { answers << jobs.pop * 2 }
end
Thread.new do
  role("sorter")
  sleep 0.8
  Array.new(3_000_000) { |i| i * 7919 % 3_000_017 }.sort
end
100.times do |i|
  jobs << i
  answers.pop
  sleep 0.01
end
truth("ready")

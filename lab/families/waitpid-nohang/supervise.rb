# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

holder = spawn("exec 9> $LAB_RUN/lock; flock 9; exec sleep 100000")
truth("role holder #{holder}")
sleep 0.3
child = spawn("exec flock $LAB_RUN/lock true")
role("waiter")
truth("role child #{child}")
truth("ready")
sleep 0.001 while Process.waitpid(child, Process::WNOHANG).nil?

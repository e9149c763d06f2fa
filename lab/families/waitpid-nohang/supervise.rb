# SPDX-License-Identifier: MIT
require "#{ENV['PYTHONPATH']}/truth"

spawn("exec flock $LAB_RUN/lock sleep 100000")
sleep 0.3
child = spawn("exec flock $LAB_RUN/lock true")
role("waiter")
truth("role child #{child}")
truth("ready")
sleep 0.001 while Process.waitpid(child, Process::WNOHANG).nil?

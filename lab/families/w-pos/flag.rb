# A thread gives way until an instance variable becomes 7; each line on stdin makes it 3. Another thread sleeps and counts.
class Job; attr_accessor :state; def initialize; @state = 0; end; def done? = @state == 7; end
job = Job.new; ticks = 0
Thread.new { job.state = 3 while $stdin.gets }
Thread.new { loop { sleep 0.01; ticks += 1 } }
Thread.pass until job.done?

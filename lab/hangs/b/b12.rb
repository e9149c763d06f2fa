m = Mutex.new; q = Queue.new
h = Thread.new { Thread.current.name = "holder"; m.synchronize { q.pop } }
t = Thread.new { Thread.current.name = "tick"; loop { sleep 0.2 } }
sleep 0.15
m.synchronize { q.push 1 }

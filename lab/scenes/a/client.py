import socket,time
c=socket.create_connection(("127.0.0.1",8932))
for i in range(15):
    c.sendall(b"fast"); c.recv(16); time.sleep(.01)
c.sendall(b"slow"); c.recv(16)
for i in range(3):
    c.sendall(b"fast"); c.recv(16); time.sleep(.01)

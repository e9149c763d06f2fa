import socket, sys
def ask(port):
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"report\n")
        return s.recv(100)
print(ask(int(open(sys.argv[1]).read())))

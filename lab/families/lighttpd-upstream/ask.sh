# SPDX-License-Identifier: MIT
cat > "$LAB_RUN/conf" << END
server.modules = ("mod_proxy")
server.document-root = "$LAB_RUN"
server.bind = "$LAB_RUN/front"
server.errorlog = "$LAB_RUN/log"
proxy.server = ("" => (("host" => "$LAB_RUN/back")))
END
python3 - "$LAB_RUN/back" << 'END' &
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
while True:
    client, _ = listener.accept()
    client.recv(1000)
    client.sendall(b"HTTP/1.0 200 OK\r\n\r\nfine")
    client.close()
END
upstream=$!
until [ -S "$LAB_RUN/back" ]; do sleep 0.05; done
lighttpd -D -f "$LAB_RUN/conf" &
server=$!
until curl -s --unix-socket "$LAB_RUN/front" http://host/ > "$LAB_RUN/page" &&
    grep -q fine "$LAB_RUN/page"; do
    sleep 0.05
done
kill -STOP $upstream
curl -s --unix-socket "$LAB_RUN/front" http://host/ &
client=$!
sleep 0.8
{
    echo "role upstream $upstream"
    echo "role server $server"
    echo "role waiter $client"
    echo ready
} >> "$LAB_TRUTH"
wait $client

# SPDX-License-Identifier: MIT
cat > "$LAB_RUN/conf" << END
daemon off;
user root;
worker_processes 1;
pid $LAB_RUN/pid;
error_log $LAB_RUN/log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path $LAB_RUN/body;
    proxy_temp_path $LAB_RUN/proxy;
    fastcgi_temp_path $LAB_RUN/fastcgi;
    uwsgi_temp_path $LAB_RUN/uwsgi;
    scgi_temp_path $LAB_RUN/scgi;
    server { listen unix:$LAB_RUN/web; location / { return 200 "fine"; } }
}
END
nginx -c "$LAB_RUN/conf" &
until [ -S "$LAB_RUN/web" ] && [ -s "$LAB_RUN/pid" ]; do sleep 0.05; done
python3 - "$LAB_RUN/web" << 'END' &
import socket, sys, time
end = time.monotonic() + 300
while time.monotonic() < end:
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    for _ in range(50):
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        if not client.recv(4096):
            break
    client.close()
END
master=$(cat "$LAB_RUN/pid")
sleep 0.3
target=$master
[ "$1" = master ] || target=$(pgrep -P "$master" | head -1)
echo "target $target" >> "$LAB_TRUTH"
echo ready >> "$LAB_TRUTH"
wait

# SPDX-License-Identifier: MIT
# A client, nginx before it, and an upstream: `ask.sh SOURCES busy`: the upstream's only thread
# waits for a lock file of a job that sleeps.
mkdir -p "$LAB_RUN/tmp"
cat > "$LAB_RUN/conf" << END
daemon off;
user root;
worker_processes 2;
error_log $LAB_RUN/log;
pid $LAB_RUN/pid;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path $LAB_RUN/tmp/a;
    proxy_temp_path $LAB_RUN/tmp/b;
    fastcgi_temp_path $LAB_RUN/tmp/c;
    uwsgi_temp_path $LAB_RUN/tmp/d;
    scgi_temp_path $LAB_RUN/tmp/e;
    upstream shop { server 127.0.0.1:$(cat "$LAB_RUN/none" 2> /dev/null || echo 1); keepalive 4; }
    server {
        listen unix:$LAB_RUN/front;
        location / { proxy_pass http://shop; proxy_http_version 1.1; proxy_read_timeout 3000s; }
    }
}
END
python3 "$1/shop.py" "$LAB_RUN" &
shop=$!
until [ -s "$LAB_RUN/port" ]; do sleep 0.05; done
sed -i "s/127.0.0.1:1;/127.0.0.1:$(cat "$LAB_RUN/port");/" "$LAB_RUN/conf"
nginx -c "$LAB_RUN/conf" -p "$LAB_RUN" &
server=$!
until curl -s --unix-socket "$LAB_RUN/front" http://host/ > "$LAB_RUN/page" &&
    grep -q fine "$LAB_RUN/page"; do
    sleep 0.05
done
if [ "$2" = busy ]; then
    flock "$LAB_RUN/stock" sleep 100000 &
    sleep 0.3
    curl -s --unix-socket "$LAB_RUN/front" http://host/stock &
    client=$!
    sleep 0.8
    echo "role holder $(pgrep -P "$!" || echo $!)" >> "$LAB_TRUTH.note"
else
    client=$server
fi
{
    echo "role shop $shop"
    echo "role server $server"
    echo "role waiter $client $client"
    echo ready
} >> "$LAB_TRUTH"
wait $client

set -e
for f in 01_counted 02_semleak 03_upgrade 23_sysv 24_server 25_mq 29_retries 30_never_started; do gcc -g -O2 -w -pthread $f.c -o $f -lrt; done
for f in 04_poolnest 05_producer_threw 26_forked; do g++ -g -O2 -w -std=c++17 -pthread $f.cpp -o $f; done
rustc -g -O 06_kept_sender.rs -o 06_kept_sender 2>/dev/null
(cd crates && cargo build --release 2>&1 | tail -2)
for d in go1 go2; do (cd $d && go build -o ../$d.bin main.go); done
for d in j11 j12 j13 j14 j32; do (cd $d && javac *.java); done

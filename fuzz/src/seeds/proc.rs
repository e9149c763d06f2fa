// SPDX-License-Identifier: MIT
//! A made-up /proc: a process whose threads wait in all ways, and one that it waits for.

use std::path::Path;

const PROCESSES: &str = "\
@locks
1: POSIX  ADVISORY  WRITE 1008 08:02:131 0 EOF
2: FLOCK  ADVISORY  WRITE 1008 08:01:9 0 EOF
2: -> FLOCK  ADVISORY  WRITE 1007 08:01:9 0 EOF
@1007/stat
1007 (a) R (b) S 1 1007 1007 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 3 0 4242 1000 200 \
    18446744073709551615 1 1 140737488347136 0 0 0 0 4096 0 1 0 0 17 1 0 0 0 0 0 1 1 1 \
    140737488350000 140737488350010 0 0 0
@1007/cmdline
postgres: app db [local] UPDATE waiting
@1007/exe>
/usr/bin/waiter
@1007/comm
waiter
@1007/maps
5555550000-5555551000 r-xp 00000000 08:01 7                              /usr/bin/waiter
5555551000-5555552000 rw-p 00001000 08:01 7                              /usr/bin/waiter (deleted)
7f0000000000-7f0000001000 rw-s 00000000 00:05 9                          /dev/shm/a b
7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]
@1007/mem
0123456789abcdef
@1007/mountinfo
22 1 254:0 / / rw - ext4 /dev/vda rw
40 22 0:45 / /mnt/a rw,nosuid shared:3 - fuse.sshfs host: rw
@1007/cgroup
0::/user.slice
@1007/task/1007/status
Name:\twaiter
State:\tS (sleeping)
Tgid:\t1007
PPid:\t1
TracerPid:\t0
Uid:\t0\t0\t0\t0
NSpid:\t1007\t7
SigBlk:\t0000000000000010
voluntary_ctxt_switches:\t12
@1007/task/1007/stat
1007 (waiter) S 1 1007 1007 0 -1 4194304 100 0 0 0 5 6 0 0 20 0 3 0 4242
@1007/task/1007/comm
waiter
@1007/task/1007/syscall
7 0x8 0x2 0xffffffffffffffff 0x0 0x0 0x0 0x7fff00000100 0x5555550010
@1007/task/1007/schedstat
123456 789 12
@1007/task/1007/io
rchar: 10
syscr: 7
syscw: 9
@1007/task/1007/wchan
do_poll
@1007/task/1009/status
Name:\tlocker
State:\tS (sleeping)
@1007/task/1009/comm
locker
@1007/task/1009/syscall
73 0x9 0x2 0x0 0x0 0x0 0x0 0x7fff00000200 0x5555550020
@1007/task/1010/status
Name:\tparent
State:\tD (disk sleep)
@1007/task/1010/comm
parent
@1007/task/1010/syscall
61 0x3f0 0x0 0x0 0x0 0x0 0x0 0x7fff00000300 0x5555550030
@1007/fd/0>
/dev/null
@1007/fd/3>
socket:[7]
@1007/fd/4>
socket:[8]
@1007/fd/5>
anon_inode:[eventpoll]
@1007/fd/6>
pipe:[77]
@1007/fd/7>
/dev/pts/1
@1007/fd/8>
anon_inode:[eventfd]
@1007/fd/9>
/proc/locks
@1007/fdinfo/5
pos:\t0
flags:\t02
mnt_id:\t15
tfd:        3 events:       19 data:                3  pos:0 ino:7 sdev:9
tfd:        6 events: 80000001 data: ffffffffffffffff  pos:0 ino:4d sdev:e
@1007/fdinfo/6
pos:\t0
flags:\t00
mnt_id:\t14
@1007/fdinfo/9
pos:\t0
flags:\t0100002
lock:\t1: FLOCK  ADVISORY  WRITE 1007 08:01:9 0 EOF
Pid:\t1008
@1007/net/tcp
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 7 1 0 \
    20 4 30 10 -1
   1: 0100007F:C350 0100007F:1F90 02 00000000:00000000 00:00000000 00000000     0        0 9 1 0 \
    20 4 30 10 -1
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 10 1 0 \
    100 0 0 10 0
@1007/net/tcp6
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:1F90 0000000000000000FFFF00000100007F:C350 01 \
    00000000:00000000 00:00000000 00000000     0        0 11 1 0
@1007/net/unix
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 8 /run/a b
0000000000000000: 00000003 00000000 00000000 0001 03 12
@1007/ns/net>
net:[4026531840]
@1008/stat
1008 (server) Z 1007 1007 1007 0 -1 4194304 100
@1008/comm
server
@1008/task/1008/stat
1008 (server) S 1007 1007
@1008/task/1008/status
Name:\tserver
State:\tR (running)
@1008/task/1008/comm
server
@1008/fd/1>
pipe:[77]
@1008/fd/2>
socket:[9]
@1008/fdinfo/1
pos:\t0
flags:\t01
@1008/ns/net>
net:[4026531841]
";

pub fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let folder = directory.join("proc");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("waits"), PROCESSES)?;
    Ok(())
}

// a TCP server of two threads: accept loop and a worker that takes a file lock before it answers
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>
static int queue[2]; static const char *lockfile;
static void answer(int c){ char b[128]; int n=read(c,b,sizeof b); if(n<=0){close(c);return;} int fd=open(lockfile,O_RDWR|O_CREAT,0600); flock(fd,LOCK_EX); write(c,"ok\n",3); close(fd); close(c);}
static void *worker(void*p){ (void)p; int c; while(read(queue[0],&c,sizeof c)==sizeof c) answer(c); return NULL; }
static void *reaper(void*p){ (void)p; for(;;) usleep(500000); }
int main(int argc,char**argv){ lockfile=argv[1]; pipe(queue); pthread_t t; pthread_create(&t,0,worker,0); pthread_setname_np(t,"worker"); pthread_create(&t,0,reaper,0); pthread_setname_np(t,"reaper");
 int l=socket(AF_INET,SOCK_STREAM,0); struct sockaddr_in a={.sin_family=AF_INET,.sin_addr.s_addr=htonl(INADDR_LOOPBACK)}; bind(l,(void*)&a,sizeof a); listen(l,8); socklen_t n=sizeof a; getsockname(l,(void*)&a,&n); FILE*f=fopen(argv[2],"w"); fprintf(f,"%d",ntohs(a.sin_port)); fclose(f);
 for(;;){ int c=accept(l,0,0); write(queue[1],&c,sizeof c);} }

#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/resource.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
#include <errno.h>
static volatile uint64_t sink;
static void name(const char*n){prctl(PR_SET_NAME,n);}
static void ms(int n){usleep(n*1000);}
static void burn(int n){struct timespec t;uint64_t e=0,a;do{for(int i=0;i<20000;i++)sink+=i;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);a=t.tv_sec*1000ull+t.tv_nsec/1000000;if(!e)e=a+n;}while(a<e);}
static int take(int fd){char c;return read(fd,&c,1)==1?c:-1;}
static void give(int fd,char c){if(write(fd,&c,1)!=1)abort();}
static pthread_t go(void*(*f)(void*),void*a){pthread_t t;if(pthread_create(&t,NULL,f,a))abort();return t;}
static int pp[2][2];
static void*pinger(void*o){int k=o!=NULL;name(k?"pong":"ping");for(;;){usleep(500);give(pp[!k][1],1);take(pp[k][0]);}}
static void*tick(void*u){name("ticktock");for(;;){poll(NULL,0,10);}return u;}
static void*anim(void*u){name("animator");for(;;){burn(6);usleep(10000);}return u;}
static void crowd(void){if(pipe(pp[0])||pipe(pp[1]))abort();go(pinger,NULL);go(pinger,pp);go(tick,NULL);go(anim,NULL);}

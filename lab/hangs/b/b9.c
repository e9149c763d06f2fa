#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void){ pthread_mutex_t *m=mmap(0,4096,PROT_READ|PROT_WRITE,MAP_SHARED|MAP_ANONYMOUS,-1,0); pthread_mutexattr_t a; pthread_mutexattr_init(&a); pthread_mutexattr_setpshared(&a,1); pthread_mutex_init(m,&a); pid_t p=fork(); if(!p){ pthread_mutex_lock(m); usleep(50000); _exit(1);} usleep(150000); int s; waitpid(p,&s,0); pthread_mutex_lock(m); }

// a holder of a System V semaphore is killed without SEM_UNDO; the next one waits
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>
union semun { int val; };
static int set; static void down(void){ struct sembuf b={0,-1,0}; semop(set,&b,1);} static void up(void){ struct sembuf b={0,1,0}; semop(set,&b,1);}
static void writer(void){ down(); sleep(100); up(); }
static void report(void){ down(); puts("report"); up(); }
int main(void){ set=semget(IPC_PRIVATE,1,0600|IPC_CREAT); semctl(set,0,SETVAL,(union semun){1}); pid_t p=fork(); if(!p){ writer(); _exit(0);} usleep(100000); kill(p,SIGKILL); int s; waitpid(p,&s,0); report(); semctl(set,0,IPC_RMID); }

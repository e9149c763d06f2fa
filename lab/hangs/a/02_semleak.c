// connection pool: a semaphore of 3; two error paths forget to give back
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static sem_t slots; static pthread_mutex_t lm=PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t lc=PTHREAD_COND_INITIALIZER; static int lines;
static void say(void){ pthread_mutex_lock(&lm); lines++; pthread_cond_signal(&lc); pthread_mutex_unlock(&lm);}
static void *logger(void*p){ (void)p; for(;;){ pthread_mutex_lock(&lm); while(!lines) pthread_cond_wait(&lc,&lm); lines--; pthread_mutex_unlock(&lm);} }
static int request(int n){ sem_wait(&slots); usleep(20000); say(); if(n%3==0) return -1; sem_post(&slots); return 0; }
static void *client(void*p){ long id=(long)p; int bad=0; for(int i=1;i<8;i++){ if(request(i+id)<0) bad++; } printf("%ld: %d bad\n",id,bad); return NULL; }
int main(void){ sem_init(&slots,0,3); pthread_t l,c[4]; pthread_create(&l,0,logger,0); pthread_setname_np(l,"logger");
 for(long i=0;i<4;i++){ pthread_create(&c[i],0,client,(void*)i); char b[16]; sprintf(b,"client-%ld",i); pthread_setname_np(c[i],b);} for(int i=0;i<4;i++) pthread_join(c[i],0); }

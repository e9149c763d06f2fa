#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t m=PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c=PTHREAD_COND_INITIALIZER; static int acks;
static void *node(void*p){ long n=(long)p; if(n==1) for(;;) pause(); usleep(60000); pthread_mutex_lock(&m); acks++; pthread_cond_signal(&c); pthread_mutex_unlock(&m); return 0; }
static void *beat(void*p){ (void)p; for(;;) usleep(120000); }
static void collect(void){ pthread_mutex_lock(&m); while(acks<2) pthread_cond_wait(&c,&m); pthread_mutex_unlock(&m);}
int main(void){ pthread_t t[2],b; pthread_create(&b,0,beat,0); pthread_setname_np(b,"beat"); for(long i=0;i<2;i++) pthread_create(&t[i],0,node,(void*)i); usleep(100000); pthread_cancel(t[1]); collect(); }

#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t m=PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c=PTHREAD_COND_INITIALIZER; static volatile int ready; static int total;
static void *sampler(void*p){ (void)p; for(;;) usleep(90000); }
static void *prepare(void*p){ (void)p; usleep(50000); ready=1; pthread_cond_signal(&c); return 0; }
static void *consume(void*p){ (void)p; if(!ready){ usleep(150000); pthread_mutex_lock(&m); pthread_cond_wait(&c,&m); pthread_mutex_unlock(&m);} total+=ready; return 0; }
int main(void){ pthread_t s,a,b; pthread_create(&s,0,sampler,0); pthread_setname_np(s,"sampler"); pthread_create(&a,0,consume,0); pthread_setname_np(a,"consume"); pthread_create(&b,0,prepare,0); pthread_join(b,0); pthread_join(a,0); return total; }

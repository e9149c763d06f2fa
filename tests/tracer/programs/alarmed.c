/* SPDX-License-Identifier: MIT */
/* Computes the same again and again while a timer's signals come. SIGTERM ends it: 0 when all came
 * out right. */
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile sig_atomic_t alarms, ending;

void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static void on_term(int number)
{
    ending = number;
}

int main(void)
{
    struct itimerval often = {{0, 50000}, {0, 50000}};
    unsigned long wrong = 0;
    signal(SIGALRM, on_alarm);
    signal(SIGTERM, on_term);
    setitimer(ITIMER_REAL, &often, NULL);
    while (!ending) {
        unsigned sum = 0;
        for (volatile int i = 0; i < 10; i++)
            sum = sum * 3 + (unsigned)i;
        wrong += sum != 14757;
    }
    return wrong != 0;
}

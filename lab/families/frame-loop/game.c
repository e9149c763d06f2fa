/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <time.h>
#include <truth.h>

static struct {
    double x, y, dx, dy;
} balls[2000];
static unsigned char screen[200][320];
static volatile int quit;

static void move(double seconds)
{
    for (int ball = 0; ball < 2000; ball++) {
        balls[ball].x = fabs(fmod(balls[ball].x + balls[ball].dx * seconds, 319));
        balls[ball].y = fabs(fmod(balls[ball].y + balls[ball].dy * seconds, 199));
        screen[(int)balls[ball].y][(int)balls[ball].x]++;
    }
}

int main(void)
{
    for (int ball = 0; ball < 2000; ball++)
        balls[ball].dx = ball % 97 - 48, balls[ball].dy = ball % 31 - 15;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    LAB_ROLE("waiter");
    LAB_READY();
    while (!quit) {
        move(1 / 60.0);
        next.tv_nsec += 16666667;
        if (next.tv_nsec >= 1000000000)
            next.tv_nsec -= 1000000000, next.tv_sec++;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
    return screen[0][0];
}

/* SPDX-License-Identifier: MIT */
/* Computes in threads, then polls a word that another thread sets, or in the spin run does not:
 * computes ROUNDS THREADS normal|spin. What it computes is chosen at compile time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef WORK_BLAS
#include <cblas.h>
#endif
#ifdef WORK_FFMPEG
#include <libavfilter/avfilter.h>
#include <libavutil/frame.h>
#endif

static volatile int ready;
static int rounds, normal;

#ifdef WORK_MATRIX
enum { SIZE = 128 };
typedef float matrix[SIZE][SIZE];

static void *compute(void *unused)
{
    matrix *m = calloc(3, sizeof *m);
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++)
            m[0][i][j] = m[1][i][j] = (float)((i ^ j) % 7);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < SIZE; i++) {
            memset(m[2][i], 0, sizeof m[2][i]);
            for (int k = 0; k < SIZE; k++)
                for (int j = 0; j < SIZE; j++)
                    m[2][i][j] += m[0][i][k] * m[1][k][j];
        }
    printf("%f\n", m[2][5][7]);
    free(m);
    return unused;
}
#endif

#ifdef WORK_BLAS
enum { SIZE = 512 };

static void *compute(void *unused)
{
    double *m = calloc(3, SIZE * SIZE * sizeof *m), *b = m + SIZE * SIZE, *c = b + SIZE * SIZE;
    for (int i = 0; i < SIZE * SIZE; i++)
        m[i] = b[i] = i % 7;
    for (int round = 0; round < rounds; round++)
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1, m, SIZE, b,
                    SIZE, 0, c, SIZE);
    printf("%f\n", c[5]);
    free(m);
    return unused;
}
#endif

#ifdef WORK_FFMPEG
static void *compute(void *unused)
{
    AVFilterGraph *graph = avfilter_graph_alloc();
    AVFilterInOut *inputs = NULL, *outputs = NULL;
    graph->nb_threads = 1;
    int failed = avfilter_graph_parse2(graph,
                                       "testsrc2=size=640x360:rate=25,scale=320:180:flags=bicubic,"
                                       "gblur=sigma=3,unsharp,buffersink",
                                       &inputs, &outputs) < 0 ||
                 avfilter_graph_config(graph, NULL) < 0;
    for (int round = 0; !failed && round < rounds; round++)
        failed = avfilter_graph_request_oldest(graph) < 0;
    printf("%d\n", failed);
    avfilter_graph_free(&graph);
    return unused;
}
#endif

static void *finish(void *unused)
{
    usleep(200000);
    ready = normal;
    return unused;
}

int main(int count, char **words)
{
    pthread_t threads[64], finisher;
    int number = count == 4 ? atoi(words[2]) : 0;
    if (number < 1 || number > 64)
        return 64;
    rounds = atoi(words[1]);
    normal = strcmp(words[3], "normal") == 0;
    for (int i = 1; i < number; i++)
        pthread_create(&threads[i], NULL, compute, NULL);
    compute(NULL);
    for (int i = 1; i < number; i++)
        pthread_join(threads[i], NULL);
    pthread_create(&finisher, NULL, finish, NULL);
    while (!ready)
        usleep(1000);
    return 0;
}

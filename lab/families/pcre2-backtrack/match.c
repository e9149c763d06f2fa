/* SPDX-License-Identifier: MIT */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <truth.h>

int main(int count, char **words)
{
    (void)words;
    const char *pattern = "^(([a-z])+.)+[A-Z]([a-z])+$";
    const char *text = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1";
    int error;
    size_t offset;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &error, &offset, NULL);
    if (count > 1 && pcre2_jit_compile(code, PCRE2_JIT_COMPLETE))
        return 2;
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    LAB_ROLE("waiter");
    LAB_READY();
    for (;;) /* each try is behind a comma of a list that never ends */
        printf("%d\n", pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, context));
}

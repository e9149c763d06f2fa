// POSIX regular expressions that go back and forth, on one line after the other.
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
long found;
int main(void) {
    regex_t re; regcomp(&re, "^\\(a*\\)*\\(a\\|b\\)*\\1c$", 0);
    char line[64];
    for (unsigned n = 1;; n++) {
        int length = 12 + n % 8; memset(line, 'a', length); line[length] = n % 3 ? 'b' : 'c'; line[length + 1] = 0;
        found += regexec(&re, line, 0, 0, 0) == 0;
    }
}

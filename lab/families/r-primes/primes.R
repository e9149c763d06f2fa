# SPDX-License-Identifier: MIT
cat("ready\n", file = Sys.getenv("LAB_TRUTH"), append = TRUE)
found <- c()
number <- 2
repeat {
  if (!any(number %% head(found, 200) == 0)) found <- c(found, number)
  if (length(found) > 5000) found <- c()
  number <- number + 1
}

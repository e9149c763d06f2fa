set.seed(3); x <- rnorm(400); means <- numeric(0); n <- 0
repeat { s <- 0; for (i in 1:400) { k <- (i * 7 + n) %% 400 + 1; if (x[k] > 0) s <- s + x[k] else s <- s - x[k] / 2 }
  means[n %% 1000 + 1] <- s; n <- n + 1; if (n %% 500 == 0) m <- quantile(means, c(.1, .9), na.rm = TRUE) }

;; SPDX-License-Identifier: MIT
;; The main thread waits for what another writes. Each line on stdin makes that write 3.
(use-modules (ice-9 threads) (ice-9 rdelim) (ice-9 atomic))
(define how (cadr (command-line)))
(define state 0)
(define cells (make-vector 16 0))
(define box (make-atomic-box 0))
(define table (make-hash-table))
(hashq-set! table 'ready 0)
(call-with-new-thread
  (lambda ()
    (let loop ()
      (unless (eof-object? (read-line))
        (set! state 3) (vector-set! cells 5 3) (atomic-box-set! box 3) (hashq-set! table 'ready 3)
        (loop)))))
(define-syntax-rule (until test body ...) (let loop () (unless test body ... (loop))))
(cond
  ((equal? how "global") (until (eqv? state 7)))
  ((equal? how "cells") (until (eqv? (vector-ref cells 5) 7) (yield)))
  ((equal? how "box") (until (eqv? (atomic-box-ref box) 7)))
  ((equal? how "table") (until (eqv? (hashq-ref table 'ready) 7) (usleep 500)))
  ((equal? how "file") (until (access? "/tmp/never" F_OK))))

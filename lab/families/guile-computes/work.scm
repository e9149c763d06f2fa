; SPDX-License-Identifier: MIT
(let ((file (open-file (getenv "LAB_TRUTH") "a")))
  (display "ready\n" file)
  (close-port file))
(define cells (make-vector 40000 0))
(let round ((number 0))
  (do ((cell 0 (+ cell 1))) ((= cell 40000))
    (vector-set! cells cell
                 (modulo (+ number (* 3 (vector-ref cells (modulo (* cell 7) 40000)))) 1000003)))
  (round (+ number 1)))

let rec fill sieve n = if n < Array.length sieve then begin
  if sieve.(n) then begin let m = ref (n * n) in while !m < Array.length sieve do sieve.(!m) <- false; m := !m + n done end; fill sieve (n + 1) end
let module_count = ref 0
let () = while true do
  let sieve = Array.make 20000 true in fill sieve 2;
  let h = Hashtbl.create 16 in Array.iteri (fun i p -> if p then Hashtbl.replace h (i mod 37) (1 + try Hashtbl.find h (i mod 37) with Not_found -> 0)) sieve;
  module_count := !module_count + Hashtbl.length h done

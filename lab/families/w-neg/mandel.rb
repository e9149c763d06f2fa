def depth(cr, ci)
  zr = zi = 0.0
  n = 0
  while n < 200 && zr * zr + zi * zi < 4.0
    zr, zi = zr * zr - zi * zi + cr, 2 * zr * zi + ci
    n += 1
  end
  n
end
total = 0
loop { (0...80).each { |y| (0...120).each { |x| total += depth(x / 40.0 - 2.1, y / 40.0 - 1.0) } } }

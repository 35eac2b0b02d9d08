copy g from '/tmp/w/pg-glob/f/*.csv' with (format csv);
